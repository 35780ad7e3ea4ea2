// Original file: proto/cluster.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { AttachReply as _heddle_v1_AttachReply, AttachReply__Output as _heddle_v1_AttachReply__Output } from '../../heddle/v1/AttachReply.ts';
import type { NodeReport as _heddle_v1_NodeReport, NodeReport__Output as _heddle_v1_NodeReport__Output } from '../../heddle/v1/NodeReport.ts';

export interface ClusterDefinition {
  Attach: MethodDefinition<_heddle_v1_NodeReport, _heddle_v1_AttachReply, _heddle_v1_NodeReport__Output, _heddle_v1_AttachReply__Output>
}
