// Original file: proto/worker.proto


export interface Started {
  'promptTokens'?: (number);
  'cachedTokens'?: (number);
  'queuedMs'?: (number | string);
}

export interface Started__Output {
  'promptTokens': (number);
  'cachedTokens': (number);
  'queuedMs': (number);
}
