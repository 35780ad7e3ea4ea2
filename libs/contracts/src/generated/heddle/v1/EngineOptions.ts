// Original file: proto/worker.proto

import type { DecodingOptions as _heddle_v1_DecodingOptions, DecodingOptions__Output as _heddle_v1_DecodingOptions__Output } from '../../heddle/v1/DecodingOptions.ts';

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
  'decoding'?: (_heddle_v1_DecodingOptions | null);
  'stageDtype'?: (string);
  'kvDtype'?: (string);
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
  'decoding': (_heddle_v1_DecodingOptions__Output | null);
  'stageDtype': (string);
  'kvDtype': (string);
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
