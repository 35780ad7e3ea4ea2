// Original file: proto/worker.proto


export interface StageOpened {
}

export interface StageOpened__Output {
}
