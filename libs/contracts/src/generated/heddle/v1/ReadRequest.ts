// Original file: proto/worker.proto

import type { ChatInput as _heddle_v1_ChatInput, ChatInput__Output as _heddle_v1_ChatInput__Output } from '../../heddle/v1/ChatInput.ts';
import type { TokenInput as _heddle_v1_TokenInput, TokenInput__Output as _heddle_v1_TokenInput__Output } from '../../heddle/v1/TokenInput.ts';

export interface ReadRequest {
  'chat'?: (_heddle_v1_ChatInput | null);
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput | null);
  'give'?: (string);
  'bare'?: (boolean);
  'input'?: "chat"|"text"|"tokens";
}

export interface ReadRequest__Output {
  'chat'?: (_heddle_v1_ChatInput__Output | null);
  'text'?: (string);
  'tokens'?: (_heddle_v1_TokenInput__Output | null);
  'give': (string);
  'bare': (boolean);
  'input'?: "chat"|"text"|"tokens";
}
