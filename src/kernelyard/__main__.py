from kernelyard.cli.main import main

main()
