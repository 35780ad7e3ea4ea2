// Original file: proto/worker.proto


export interface EngineOptions {
  'contextTokens'?: (number);
  'kvTokens'?: (number);
  'maxSequences'?: (number);
  'maxQueued'?: (number);
  'threads'?: (number);
  'prefillBudgetTokens'?: (number);
  'device'?: (string);
  'gpuLayers'?: (number);
  'chatTemplate'?: (string);
  '_contextTokens'?: "contextTokens";
  '_kvTokens'?: "kvTokens";
  '_maxSequences'?: "maxSequences";
  '_maxQueued'?: "maxQueued";
  '_threads'?: "threads";
  '_prefillBudgetTokens'?: "prefillBudgetTokens";
  '_device'?: "device";
  '_gpuLayers'?: "gpuLayers";
  '_chatTemplate'?: "chatTemplate";
}

export interface EngineOptions__Output {
  'contextTokens'?: (number);
  'kvTokens'?: (number);
  'maxSequences'?: (number);
  'maxQueued'?: (number);
  'threads'?: (number);
  'prefillBudgetTokens'?: (number);
  'device'?: (string);
  'gpuLayers'?: (number);
  'chatTemplate'?: (string);
  '_contextTokens'?: "contextTokens";
  '_kvTokens'?: "kvTokens";
  '_maxSequences'?: "maxSequences";
  '_maxQueued'?: "maxQueued";
  '_threads'?: "threads";
  '_prefillBudgetTokens'?: "prefillBudgetTokens";
  '_device'?: "device";
  '_gpuLayers'?: "gpuLayers";
  '_chatTemplate'?: "chatTemplate";
}
