// Original file: proto/tasks.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { ArtifactChunk as _heddle_v1_ArtifactChunk, ArtifactChunk__Output as _heddle_v1_ArtifactChunk__Output } from '../../heddle/v1/ArtifactChunk.ts';
import type { ArtifactRange as _heddle_v1_ArtifactRange, ArtifactRange__Output as _heddle_v1_ArtifactRange__Output } from '../../heddle/v1/ArtifactRange.ts';

export interface TaskArtifactsDefinition {
  Read: MethodDefinition<_heddle_v1_ArtifactRange, _heddle_v1_ArtifactChunk, _heddle_v1_ArtifactRange__Output, _heddle_v1_ArtifactChunk__Output>
}
