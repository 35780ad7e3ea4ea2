// Original file: proto/worker.proto


export interface UnloadReply {
}

export interface UnloadReply__Output {
}
