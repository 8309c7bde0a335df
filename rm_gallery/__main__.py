"""`python -m rm_gallery` is the `rm-gallery` command."""

from rm_gallery.cli.main import main

if __name__ == "__main__":
    main()
