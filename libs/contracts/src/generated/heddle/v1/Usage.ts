// Original file: proto/worker.proto


export interface Usage {
  'promptTokens'?: (number);
  'cachedTokens'?: (number);
  'completionTokens'?: (number);
  'reasoningTokens'?: (number);
}

export interface Usage__Output {
  'promptTokens': (number);
  'cachedTokens': (number);
  'completionTokens': (number);
  'reasoningTokens': (number);
}
