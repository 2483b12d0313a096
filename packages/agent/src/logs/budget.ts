/** Limits of the lines that a node sends: a token bucket for lines and one for bytes. */
export type Rate = { lines: number; bytes: number };

/** `burst`: seconds of the rate that may come at once. */
export function createBudget(
  rate: Rate,
  burst: number,
  clock: () => number = () => performance.now(),
) {
  const most = { lines: rate.lines * burst, bytes: rate.bytes * burst };
  let left = { ...most };
  let at = clock();
  return {
    /** Whether a line of this size fits. It is not spent yet. */
    has(bytes: number): boolean {
      const now = clock();
      const seconds = Math.max(0, now - at) / 1000;
      at = now;
      left = {
        lines: Math.min(most.lines, left.lines + seconds * rate.lines),
        bytes: Math.min(most.bytes, left.bytes + seconds * rate.bytes),
      };
      return left.lines >= 1 && left.bytes >= bytes;
    },
    spend(bytes: number): void {
      left.lines -= 1;
      left.bytes -= bytes;
    },
  };
}
export type Budget = ReturnType<typeof createBudget>;
