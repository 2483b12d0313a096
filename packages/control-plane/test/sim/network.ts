/** Messages between lives: lost, late, repeated, overtaking one another; cut off altogether while a side is split off. */
import type { Life, World } from './world.ts';

/** No answer came in time; whether the question arrived is not known. */
export class NoAnswer extends Error {
  override name = 'NoAnswer';
}

export type Answer<T> = { ok: true; value: T } | { ok: false; error: Error };
export type Network = {
  /** How bad it is: 0 is a quiet network. Shares of messages. */
  weather: { lost: number; late: number; repeated: number };
  /** Names of those that nobody can reach. */
  split: Set<string>;
  /** Names of those whose messages are never lost, late or repeated. */
  sound: Set<string>;
  /** Asks `deliver` from `caller`'s life. Rejects with NoAnswer or with the error of the answer. */
  ask<T>(caller: Life, deliver: (reply: (answer: Answer<T>) => void) => void, timeoutMs?: number): Promise<T>;
};

const LATE_MS = 9_000;

export function createNetwork(world: World): Network {
  const { random } = world;
  /** A message on its way belongs to nobody: it arrives whether or not its sender still lives. */
  const wire: Life = { name: 'wire', alive: true };
  const weather = { lost: 0, late: 0, repeated: 0 };
  const split = new Set<string>();
  const sound = new Set<string>();
  const delay = (from: Life): number =>
    !sound.has(from.name) && random.chance(weather.late) ? random.int(50, LATE_MS) : random.int(1, 20);

  return {
    weather,
    split,
    sound,
    ask(caller, deliver, timeoutMs = 4_000) {
      return new Promise((resolve, reject) => {
        let over = false;
        const end = (run: () => void): void => {
          if (over) return;
          over = true;
          run();
        };
        const carry = (arrive: () => void): void => {
          if (split.has(caller.name) || (!sound.has(caller.name) && random.chance(weather.lost))) return;
          world.after(delay(caller), wire, () => {
            if (!split.has(caller.name)) arrive();
          });
        };
        const send = (): void =>
          carry(() =>
            deliver((answer) =>
              carry(() => {
                if (caller.alive) end(() => (answer.ok ? resolve(answer.value) : reject(answer.error)));
              }),
            ),
          );
        world.after(timeoutMs, caller, () => end(() => reject(new NoAnswer('no answer'))));
        send();
        if (!sound.has(caller.name) && random.chance(weather.repeated)) send();
      });
    },
  };
}
