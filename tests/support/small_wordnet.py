"""Seven nouns in the format of WordNet's data.noun."""

# The format of wndb(5WN): offset, file number, type, number of words (hexadecimal), word and lex id each, number of
# pointers, pointers (symbol, offset, part of speech, source/target), gloss. `@` is a hypernym, `@i` an instance
# hypernym, `~` a hyponym.
SMALL = """  1 This software and database is being provided to you, the LICENSEE.
00001740 03 n 01 entity 0 003 ~ 00004258 n 0000 ~ 00000050 n 0000 + 00999999 a 0101 | that which is
00004258 03 n 02 living_thing 0 animate_thing 0 001 @ 00001740 n 0000 | a living entity
00000010 03 n 01 animal 0 001 @ 00004258 n 0000 | moves
00000020 03 n 01 artifact 0 001 @ 00001740 n 0000 | made
00000030 03 n 02 working_dog 0 dog 1 002 @ 00000010 n 0000 @ 00000020 n 0000 | both a living thing | and a tool
00000040 03 n 01 husky 0 001 @ 00000030 n 0000 | pulls
00000050 03 n 01 Balto 0 001 @i 00000040 n 0000 | an instance, so its own root
"""
