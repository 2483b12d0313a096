export function answerHelp(script: string, argv?: string[]): void;
