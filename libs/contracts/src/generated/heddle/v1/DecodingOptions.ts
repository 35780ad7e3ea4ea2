// Original file: proto/worker.proto


export interface DecodingOptions {
  'draftTokens'?: (number);
  '_draftTokens'?: "draftTokens";
}

export interface DecodingOptions__Output {
  'draftTokens'?: (number);
  '_draftTokens'?: "draftTokens";
}
