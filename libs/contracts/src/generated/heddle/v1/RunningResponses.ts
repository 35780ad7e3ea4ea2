// Original file: proto/responses.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { ResponseProgress as _heddle_v1_ResponseProgress, ResponseProgress__Output as _heddle_v1_ResponseProgress__Output } from '../../heddle/v1/ResponseProgress.ts';
import type { ResponseToFollow as _heddle_v1_ResponseToFollow, ResponseToFollow__Output as _heddle_v1_ResponseToFollow__Output } from '../../heddle/v1/ResponseToFollow.ts';

export interface RunningResponsesDefinition {
  Follow: MethodDefinition<_heddle_v1_ResponseToFollow, _heddle_v1_ResponseProgress, _heddle_v1_ResponseToFollow__Output, _heddle_v1_ResponseProgress__Output>
}
