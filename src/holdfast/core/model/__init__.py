"""What do the protocols speak of? The nouns, without anything that is done with them."""
