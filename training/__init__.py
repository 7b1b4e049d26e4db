"""What runs in the image: two trainers and the small pieces that both need."""
