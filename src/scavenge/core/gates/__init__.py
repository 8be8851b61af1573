"""core/gates"""
