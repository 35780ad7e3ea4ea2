// Original file: proto/worker.proto

import type { ChatInput as _heddle_v1_ChatInput, ChatInput__Output as _heddle_v1_ChatInput__Output } from '../../heddle/v1/ChatInput.ts';
import type { TokenInput as _heddle_v1_TokenInput, TokenInput__Output as _heddle_v1_TokenInput__Output } from '../../heddle/v1/TokenInput.ts';
import type { LogitBias as _heddle_v1_LogitBias, LogitBias__Output as _heddle_v1_LogitBias__Output } from '../../heddle/v1/LogitBias.ts';
import type { Adapter as _heddle_v1_Adapter, Adapter__Output as _heddle_v1_Adapter__Output } from '../../heddle/v1/Adapter.ts';
import type { SentChoice as _heddle_v1_SentChoice, SentChoice__Output as _heddle_v1_SentChoice__Output } from '../../heddle/v1/SentChoice.ts';

export interface GenerateRequest {
  'chat'?: (_heddle_v1_ChatInput | null);
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput | null);
  'choices'?: (number);
  'maxTokens'?: (number);
  'stop'?: (string)[];
  'topLogprobs'?: (number);
  'format'?: (string);
  'temperature'?: (number | string);
  'topP'?: (number | string);
  'presencePenalty'?: (number | string);
  'frequencyPenalty'?: (number | string);
  'seed'?: (number);
  'logitBias'?: (_heddle_v1_LogitBias)[];
  'topK'?: (number);
  'minP'?: (number | string);
  'repetitionPenalty'?: (number | string);
  'minTokens'?: (number);
  'ignoreEnd'?: (boolean);
  'schema'?: (string);
  'toolChoice'?: (string);
  'toolNames'?: (string)[];
  'parallelToolCalls'?: (boolean);
  'echo'?: (boolean);
  'suffix'?: (string);
  'reasoningTokens'?: (number);
  'deterministic'?: (boolean);
  'adapter'?: (_heddle_v1_Adapter | null);
  'sent'?: (_heddle_v1_SentChoice)[];
  'input'?: "chat"|"text"|"tokens";
  '_maxTokens'?: "maxTokens";
  '_topLogprobs'?: "topLogprobs";
  '_seed'?: "seed";
  '_suffix'?: "suffix";
  '_reasoningTokens'?: "reasoningTokens";
  '_deterministic'?: "deterministic";
}

export interface GenerateRequest__Output {
  'chat'?: (_heddle_v1_ChatInput__Output | null);
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput__Output | null);
  'choices': (number);
  'maxTokens'?: (number);
  'stop': (string)[];
  'topLogprobs'?: (number);
  'format': (string);
  'temperature': (number);
  'topP': (number);
  'presencePenalty': (number);
  'frequencyPenalty': (number);
  'seed'?: (number);
  'logitBias': (_heddle_v1_LogitBias__Output)[];
  'topK': (number);
  'minP': (number);
  'repetitionPenalty': (number);
  'minTokens': (number);
  'ignoreEnd': (boolean);
  'schema': (string);
  'toolChoice': (string);
  'toolNames': (string)[];
  'parallelToolCalls': (boolean);
  'echo': (boolean);
  'suffix'?: (string);
  'reasoningTokens'?: (number);
  'deterministic'?: (boolean);
  'adapter': (_heddle_v1_Adapter__Output | null);
  'sent': (_heddle_v1_SentChoice__Output)[];
  'input'?: "chat"|"text"|"tokens";
  '_maxTokens'?: "maxTokens";
  '_topLogprobs'?: "topLogprobs";
  '_seed'?: "seed";
  '_suffix'?: "suffix";
  '_reasoningTokens'?: "reasoningTokens";
  '_deterministic'?: "deterministic";
}
