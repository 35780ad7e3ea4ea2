// Original file: proto/worker.proto


export interface TokenInput {
  'tokens'?: (number)[];
}

export interface TokenInput__Output {
  'tokens': (number)[];
}
