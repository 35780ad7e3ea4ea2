// Original file: proto/documents.proto


export interface ContentChunk {
  'digest'?: (string);
  'data'?: (Buffer | Uint8Array | string);
}

export interface ContentChunk__Output {
  'digest': (string);
  'data': (Buffer);
}
