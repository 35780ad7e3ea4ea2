// Original file: proto/worker.proto


export interface PairInput {
  'query'?: (string);
  'document'?: (string);
}

export interface PairInput__Output {
  'query': (string);
  'document': (string);
}
