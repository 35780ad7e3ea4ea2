// Original file: proto/responses.proto


export interface ResponseProgress {
  'json'?: (Buffer | Uint8Array | string);
  'isCurrent'?: (boolean);
}

export interface ResponseProgress__Output {
  'json': (Buffer);
  'isCurrent': (boolean);
}
