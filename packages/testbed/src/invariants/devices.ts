/** Checks that a device of a machine is used by one container at a time. */
import type { HistoryFacts } from './facts.ts';

export function checkDevices({ history, broken }: HistoryFacts): void {
  const users = new Map<string, string>();
  const byHand = new Set<string>();
  for (const e of history) {
    if (e.type !== 'container' && e.type !== 'command') continue;
    const runs = e.change === 'started' || e.change === 'moved';
    // A person can start any container with the engine's own command. Berth stops it again.
    if (e.type === 'container' && e.change === 'started' && e.cause === 'hand')
      byHand.add(e.container);
    else if (e.change === 'started') byHand.delete(e.container);
    if (runs && byHand.has(e.container)) continue;
    for (const device of e.devices ?? []) {
      const user = users.get(device);
      if (!runs) {
        if (user === e.container) users.delete(device);
        continue;
      }
      if (user !== undefined && user !== e.container)
        broken('one-device-user', e.at, `${device} is used by ${user} and by ${e.container}`);
      users.set(device, e.container);
    }
  }
}
