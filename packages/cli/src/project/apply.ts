/** Says how a settings change takes effect, without advice that undoes a stop or a rollback. */
import { ApiError } from '@berth/wire/client';
import type { Cli } from '../cli.ts';
import { isAway } from '../problem.ts';

type Changed = { name: string; stopped: boolean; running_deployment_id: string | null };

export async function sayHowToApply(
  cli: Cli,
  { name, stopped, running_deployment_id: id }: Changed,
  purpose = '',
): Promise<void> {
  if (id === null) return;
  const running = stopped
    ? null
    : await cli
        .client()
        .call('getDeployment', { params: { id } })
        .catch((error: unknown) => {
          // The change is already saved, so this failed read must not fail the command.
          if (isAway(error) || error instanceof ApiError) return null;
          throw error;
        });
  const from = running?.rolled_back_from ?? null;
  if (stopped)
    cli.say(
      `it takes effect with the next deployment; ${name} stays stopped, and berth deploy would ` +
        'start it',
    );
  // A version without the change would be `drifted`, unless a rollback has set the change aside.
  else if (from === null && running?.health?.status === 'healthy') cli.say('it is in effect');
  else if (from === null) cli.say(`next: berth deploy ${name}${purpose}`);
  else
    cli.say(
      `it takes effect with the next deployment from source; ${name} was rolled back from ` +
        `deployment ${from}, and berth deploy builds the newest commit`,
    );
}
