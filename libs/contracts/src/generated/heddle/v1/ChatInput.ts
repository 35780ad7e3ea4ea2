// Original file: proto/worker.proto

import type { ChatMessage as _heddle_v1_ChatMessage, ChatMessage__Output as _heddle_v1_ChatMessage__Output } from '../../heddle/v1/ChatMessage.ts';
import type { Tool as _heddle_v1_Tool, Tool__Output as _heddle_v1_Tool__Output } from '../../heddle/v1/Tool.ts';

export interface ChatInput {
  'messages'?: (_heddle_v1_ChatMessage)[];
  'tools'?: (_heddle_v1_Tool)[];
  'effort'?: (string);
}

export interface ChatInput__Output {
  'messages': (_heddle_v1_ChatMessage__Output)[];
  'tools': (_heddle_v1_Tool__Output)[];
  'effort': (string);
}
