export function printLine(line: string): void;
export function step<T>(what: string, work: () => Promise<T>): Promise<T>;
