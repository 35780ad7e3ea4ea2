// Original file: proto/worker.proto


export interface Embedding {
  'input'?: (number);
  'values'?: (Buffer | Uint8Array | string);
}

export interface Embedding__Output {
  'input': (number);
  'values': (Buffer);
}
