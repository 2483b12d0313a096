/**
 * Messages between lives: lost, late, repeated or out of order, and cut off while the network is
 * partitioned.
 */
import type { Life, World } from './world.ts';

/** No answer came in time. The request may have arrived or not. */
export class NoAnswer extends Error {
  override name = 'NoAnswer';
}

export type Answer<T> = { ok: true; value: T } | { ok: false; error: Error };
export type Network = {
  /** Shares of messages with a fault; 0 is a healthy network. */
  weather: { lost: number; late: number; repeated: number };
  /** Names that are cut off from all others. */
  split: Set<string>;
  /** Names whose messages are never lost, late or repeated. */
  sound: Set<string>;
  /**
   * Sends a request from `caller`'s life. Rejects with NoAnswer or with the error of the answer.
   */
  ask<T>(
    caller: Life,
    deliver: (reply: (answer: Answer<T>) => void) => void,
    timeoutMs?: number,
  ): Promise<T>;
};

const LATE_MS = 9_000;

export function createNetwork(world: World): Network {
  const { random } = world;
  /** Owner of messages on their way: they arrive whether or not the sender still lives. */
  const wire: Life = { name: 'wire', alive: true };
  const weather = { lost: 0, late: 0, repeated: 0 };
  const split = new Set<string>();
  const sound = new Set<string>();
  const delay = (from: Life): number =>
    !sound.has(from.name) && random.chance(weather.late)
      ? random.int(50, LATE_MS)
      : random.int(1, 20);

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
          if (split.has(caller.name) || (!sound.has(caller.name) && random.chance(weather.lost)))
            return;
          world.after(delay(caller), wire, () => {
            if (!split.has(caller.name)) arrive();
          });
        };
        const send = (): void =>
          carry(() =>
            deliver((answer) =>
              carry(() => {
                if (caller.alive)
                  end(() => (answer.ok ? resolve(answer.value) : reject(answer.error)));
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
