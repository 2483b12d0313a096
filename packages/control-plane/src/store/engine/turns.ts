/**
 * Who asks first goes first: for the one connection to an embedded engine. Kysely's own lock wakes everybody at each release, and
 * all but one go back to wait: with ten thousand waiting that is fifty million wakes, during which nothing else runs.
 */
export type Turns = {
  /** Resolves when it is the caller's turn, who then must call `end`. */
  take(): Promise<void>;
  end(): void;
};

export function createTurns(): Turns {
  const waiting: (() => void)[] = [];
  let taken = false;
  return {
    take() {
      if (taken) return new Promise((resolve) => waiting.push(resolve));
      taken = true;
      return Promise.resolve();
    },
    end() {
      const next = waiting.shift();
      // Handed over, never free in between: nobody who comes now goes before those who wait.
      if (next === undefined) taken = false;
      else next();
    },
  };
}
