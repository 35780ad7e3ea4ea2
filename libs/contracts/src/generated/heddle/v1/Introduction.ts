// Original file: proto/raft.proto


export interface Introduction {
  'name'?: (string);
  'nonce'?: (string);
  'address'?: (string);
  'peers'?: (string)[];
  'member'?: (number);
  'supports'?: (number);
  'admission'?: (Buffer | Uint8Array | string);
  'secretsKeys'?: (string)[];
}

export interface Introduction__Output {
  'name': (string);
  'nonce': (string);
  'address': (string);
  'peers': (string)[];
  'member': (number);
  'supports': (number);
  'admission': (Buffer);
  'secretsKeys': (string)[];
}
