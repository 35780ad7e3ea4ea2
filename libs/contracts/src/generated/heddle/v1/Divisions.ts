// Original file: proto/divisions.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { DivisionNotes as _heddle_v1_DivisionNotes, DivisionNotes__Output as _heddle_v1_DivisionNotes__Output } from '../../heddle/v1/DivisionNotes.ts';
import type { DivisionsRequest as _heddle_v1_DivisionsRequest, DivisionsRequest__Output as _heddle_v1_DivisionsRequest__Output } from '../../heddle/v1/DivisionsRequest.ts';

export interface DivisionsDefinition {
  Read: MethodDefinition<_heddle_v1_DivisionsRequest, _heddle_v1_DivisionNotes, _heddle_v1_DivisionsRequest__Output, _heddle_v1_DivisionNotes__Output>
}
