// Original file: proto/events.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { EventBytes as _heddle_v1_EventBytes, EventBytes__Output as _heddle_v1_EventBytes__Output } from '../../heddle/v1/EventBytes.ts';
import type { EventHashes as _heddle_v1_EventHashes, EventHashes__Output as _heddle_v1_EventHashes__Output } from '../../heddle/v1/EventHashes.ts';
import type { EventRange as _heddle_v1_EventRange, EventRange__Output as _heddle_v1_EventRange__Output } from '../../heddle/v1/EventRange.ts';

export interface EventEntriesDefinition {
  Read: MethodDefinition<_heddle_v1_EventRange, _heddle_v1_EventBytes, _heddle_v1_EventRange__Output, _heddle_v1_EventBytes__Output>
  ReadHashes: MethodDefinition<_heddle_v1_EventRange, _heddle_v1_EventHashes, _heddle_v1_EventRange__Output, _heddle_v1_EventHashes__Output>
}
