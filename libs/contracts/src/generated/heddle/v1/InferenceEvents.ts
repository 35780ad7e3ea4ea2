// Original file: proto/worker.proto

import type { InferenceEvent as _heddle_v1_InferenceEvent, InferenceEvent__Output as _heddle_v1_InferenceEvent__Output } from '../../heddle/v1/InferenceEvent.ts';

export interface InferenceEvents {
  'events'?: (_heddle_v1_InferenceEvent)[];
  'computed'?: (number)[];
}

export interface InferenceEvents__Output {
  'events': (_heddle_v1_InferenceEvent__Output)[];
  'computed': (number)[];
}
