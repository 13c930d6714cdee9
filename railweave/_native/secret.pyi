"""Keys and message authentication codes of a job"""



def derive_key(secret: bytes, purpose: str, part: int = 0) -> bytes: ...

def authenticate(key: bytes, message: bytes) -> bytes: ...
