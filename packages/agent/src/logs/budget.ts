/** Limits the lines that a node sends, with one token bucket for lines and one for bytes. */
export type Rate = { lines: number; bytes: number };

/** Creates a budget. `burst`: the number of seconds of the rate that can be spent at once. */
export function createBudget(
  rate: Rate,
  burst: number,
  clock: () => number = () => performance.now(),
) {
  const most = { lines: rate.lines * burst, bytes: rate.bytes * burst };
  let remaining = { ...most };
  let at = clock();
  return {
    /** Tells whether a line of this size fits, without spending it. */
    has(bytes: number): boolean {
      const now = clock();
      const seconds = Math.max(0, now - at) / 1000;
      at = now;
      remaining = {
        lines: Math.min(most.lines, remaining.lines + seconds * rate.lines),
        bytes: Math.min(most.bytes, remaining.bytes + seconds * rate.bytes),
      };
      return remaining.lines >= 1 && remaining.bytes >= bytes;
    },
    spend(bytes: number): void {
      remaining.lines -= 1;
      remaining.bytes -= bytes;
    },
  };
}
export type Budget = ReturnType<typeof createBudget>;
