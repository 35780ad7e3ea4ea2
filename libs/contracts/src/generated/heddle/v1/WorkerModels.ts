// Original file: proto/worker.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { LoadReply as _heddle_v1_LoadReply, LoadReply__Output as _heddle_v1_LoadReply__Output } from '../../heddle/v1/LoadReply.ts';
import type { LoadRequest as _heddle_v1_LoadRequest, LoadRequest__Output as _heddle_v1_LoadRequest__Output } from '../../heddle/v1/LoadRequest.ts';
import type { ModelSize as _heddle_v1_ModelSize, ModelSize__Output as _heddle_v1_ModelSize__Output } from '../../heddle/v1/ModelSize.ts';
import type { PlanStagesRequest as _heddle_v1_PlanStagesRequest, PlanStagesRequest__Output as _heddle_v1_PlanStagesRequest__Output } from '../../heddle/v1/PlanStagesRequest.ts';
import type { PullProgress as _heddle_v1_PullProgress, PullProgress__Output as _heddle_v1_PullProgress__Output } from '../../heddle/v1/PullProgress.ts';
import type { PullRequest as _heddle_v1_PullRequest, PullRequest__Output as _heddle_v1_PullRequest__Output } from '../../heddle/v1/PullRequest.ts';
import type { SizeModelRequest as _heddle_v1_SizeModelRequest, SizeModelRequest__Output as _heddle_v1_SizeModelRequest__Output } from '../../heddle/v1/SizeModelRequest.ts';
import type { StagePlan as _heddle_v1_StagePlan, StagePlan__Output as _heddle_v1_StagePlan__Output } from '../../heddle/v1/StagePlan.ts';
import type { UnloadReply as _heddle_v1_UnloadReply, UnloadReply__Output as _heddle_v1_UnloadReply__Output } from '../../heddle/v1/UnloadReply.ts';
import type { UnloadRequest as _heddle_v1_UnloadRequest, UnloadRequest__Output as _heddle_v1_UnloadRequest__Output } from '../../heddle/v1/UnloadRequest.ts';

export interface WorkerModelsDefinition {
  Load: MethodDefinition<_heddle_v1_LoadRequest, _heddle_v1_LoadReply, _heddle_v1_LoadRequest__Output, _heddle_v1_LoadReply__Output>
  PlanStages: MethodDefinition<_heddle_v1_PlanStagesRequest, _heddle_v1_StagePlan, _heddle_v1_PlanStagesRequest__Output, _heddle_v1_StagePlan__Output>
  Pull: MethodDefinition<_heddle_v1_PullRequest, _heddle_v1_PullProgress, _heddle_v1_PullRequest__Output, _heddle_v1_PullProgress__Output>
  SizeModel: MethodDefinition<_heddle_v1_SizeModelRequest, _heddle_v1_ModelSize, _heddle_v1_SizeModelRequest__Output, _heddle_v1_ModelSize__Output>
  Unload: MethodDefinition<_heddle_v1_UnloadRequest, _heddle_v1_UnloadReply, _heddle_v1_UnloadRequest__Output, _heddle_v1_UnloadReply__Output>
}
