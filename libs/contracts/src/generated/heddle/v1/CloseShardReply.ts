// Original file: proto/parameters.proto


export interface CloseShardReply {
}

export interface CloseShardReply__Output {
}
