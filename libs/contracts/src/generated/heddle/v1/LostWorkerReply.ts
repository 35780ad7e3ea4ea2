// Original file: proto/parameters.proto


export interface LostWorkerReply {
}

export interface LostWorkerReply__Output {
}
