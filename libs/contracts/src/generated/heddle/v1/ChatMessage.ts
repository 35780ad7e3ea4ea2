// Original file: proto/worker.proto

import type { ToolCall as _heddle_v1_ToolCall, ToolCall__Output as _heddle_v1_ToolCall__Output } from '../../heddle/v1/ToolCall.ts';

export interface ChatMessage {
  'role'?: (string);
  'content'?: (string);
  'name'?: (string);
  'toolCalls'?: (_heddle_v1_ToolCall)[];
  'toolCallId'?: (string);
  '_content'?: "content";
  '_name'?: "name";
  '_toolCallId'?: "toolCallId";
}

export interface ChatMessage__Output {
  'role': (string);
  'content'?: (string);
  'name'?: (string);
  'toolCalls': (_heddle_v1_ToolCall__Output)[];
  'toolCallId'?: (string);
  '_content'?: "content";
  '_name'?: "name";
  '_toolCallId'?: "toolCallId";
}
