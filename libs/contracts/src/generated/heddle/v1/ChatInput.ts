// Original file: proto/worker.proto

import type { ChatMessage as _heddle_v1_ChatMessage, ChatMessage__Output as _heddle_v1_ChatMessage__Output } from '../../heddle/v1/ChatMessage.ts';

export interface ChatInput {
  'messages'?: (_heddle_v1_ChatMessage)[];
}

export interface ChatInput__Output {
  'messages': (_heddle_v1_ChatMessage__Output)[];
}
