// Original file: proto/enrollment.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { Certificates as _heddle_v1_Certificates, Certificates__Output as _heddle_v1_Certificates__Output } from '../../heddle/v1/Certificates.ts';
import type { JoinRequest as _heddle_v1_JoinRequest, JoinRequest__Output as _heddle_v1_JoinRequest__Output } from '../../heddle/v1/JoinRequest.ts';
import type { RenewRequest as _heddle_v1_RenewRequest, RenewRequest__Output as _heddle_v1_RenewRequest__Output } from '../../heddle/v1/RenewRequest.ts';

export interface EnrollmentDefinition {
  Join: MethodDefinition<_heddle_v1_JoinRequest, _heddle_v1_Certificates, _heddle_v1_JoinRequest__Output, _heddle_v1_Certificates__Output>
  Renew: MethodDefinition<_heddle_v1_RenewRequest, _heddle_v1_Certificates, _heddle_v1_RenewRequest__Output, _heddle_v1_Certificates__Output>
}
