// Original file: proto/documents.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { ContentChunk as _heddle_v1_ContentChunk, ContentChunk__Output as _heddle_v1_ContentChunk__Output } from '../../heddle/v1/ContentChunk.ts';
import type { ContentName as _heddle_v1_ContentName, ContentName__Output as _heddle_v1_ContentName__Output } from '../../heddle/v1/ContentName.ts';
import type { ContentStored as _heddle_v1_ContentStored, ContentStored__Output as _heddle_v1_ContentStored__Output } from '../../heddle/v1/ContentStored.ts';

export interface DocumentContentsDefinition {
  Get: MethodDefinition<_heddle_v1_ContentName, _heddle_v1_ContentChunk, _heddle_v1_ContentName__Output, _heddle_v1_ContentChunk__Output>
  Put: MethodDefinition<_heddle_v1_ContentChunk, _heddle_v1_ContentStored, _heddle_v1_ContentChunk__Output, _heddle_v1_ContentStored__Output>
}
