// Original file: proto/documents.proto

import type { MethodDefinition } from '@grpc/proto-loader'
import type { ContentChunk as _heddle_v1_ContentChunk, ContentChunk__Output as _heddle_v1_ContentChunk__Output } from '../../heddle/v1/ContentChunk.ts';
import type { ContentName as _heddle_v1_ContentName, ContentName__Output as _heddle_v1_ContentName__Output } from '../../heddle/v1/ContentName.ts';
import type { ContentStored as _heddle_v1_ContentStored, ContentStored__Output as _heddle_v1_ContentStored__Output } from '../../heddle/v1/ContentStored.ts';
import type { MissingContents as _heddle_v1_MissingContents, MissingContents__Output as _heddle_v1_MissingContents__Output } from '../../heddle/v1/MissingContents.ts';
import type { MissingRequest as _heddle_v1_MissingRequest, MissingRequest__Output as _heddle_v1_MissingRequest__Output } from '../../heddle/v1/MissingRequest.ts';

export interface DocumentContentsDefinition {
  Get: MethodDefinition<_heddle_v1_ContentName, _heddle_v1_ContentChunk, _heddle_v1_ContentName__Output, _heddle_v1_ContentChunk__Output>
  Missing: MethodDefinition<_heddle_v1_MissingRequest, _heddle_v1_MissingContents, _heddle_v1_MissingRequest__Output, _heddle_v1_MissingContents__Output>
  Put: MethodDefinition<_heddle_v1_ContentChunk, _heddle_v1_ContentStored, _heddle_v1_ContentChunk__Output, _heddle_v1_ContentStored__Output>
}
