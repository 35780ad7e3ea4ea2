// Original file: proto/worker.proto


export interface DecodingOptions {
  'draftTokens'?: (number);
  'deterministic'?: (string);
  'contextShift'?: (boolean);
  '_draftTokens'?: "draftTokens";
}

export interface DecodingOptions__Output {
  'draftTokens'?: (number);
  'deterministic': (string);
  'contextShift': (boolean);
  '_draftTokens'?: "draftTokens";
}
