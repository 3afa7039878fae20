from granularity.cli import main

main()
