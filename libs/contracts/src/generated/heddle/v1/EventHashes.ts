// Original file: proto/events.proto


export interface EventHashes {
  'hashes'?: (Buffer | Uint8Array | string);
}

export interface EventHashes__Output {
  'hashes': (Buffer);
}
