/**
 * Builds the needs of a deployment, and the placement question for each instance after its first
 * one. Pure.
 */
import { WEB } from '@berth/wire/project';
import { wantedOf } from '../domain/data/mounts.ts';
import { moveNeed, volumeNeeds } from '../domain/data/volumes.ts';
import { deviceNeeds, limitNeeds, type Need, processNeed } from '../domain/nodes/build-needs.ts';
import type { Question } from '../domain/nodes/placement.ts';
import { processIn, webSettings } from '../domain/projects/processes.ts';
import type { DeploymentRecord, NodeLoss } from '../domain/platform/records.ts';
import type { Draft } from './plan-draft.ts';
import { releaseNeeds } from './release-command.ts';
import { machineOfOther } from './room.ts';
import { secretNeeds } from './secrets.ts';

export const deployNeeds = ({ facts }: Draft, d: DeploymentRecord, isMove: boolean): Need[] => [
  ...secretNeeds(facts.secrets, 'deploy'),
  ...volumeNeeds(d.settings),
  ...limitNeeds(webSettings(d.settings)),
  ...deviceNeeds(d.settings),
  ...releaseNeeds(d),
  ...((processIn(d.settings, WEB)?.command ?? null) === null ? [] : [processNeed(WEB)]),
  ...(isMove ? [moveNeed] : []),
];

/**
 * Returns the question for a further instance of a deployment that has a node. It wants the dataset
 * versions that the deployment has.
 */
export function questionAgain(
  draft: Draft,
  d: DeploymentRecord,
  losses: readonly NodeLoss[],
): Question {
  const pinned = new Map((d.datasets ?? []).map((pin) => [pin.dataset_id, pin.version]));
  return {
    wanted: wantedOf(d.settings.datasets, draft.facts.datasets).map((wanted) => ({
      ...wanted,
      version: pinned.get(wanted.id) ?? wanted.version,
    })),
    losses,
    runsOn: null,
    stays: false,
    arch: d.image_arch,
    needs: deployNeeds(draft, d, false),
    machine: machineOfOther(draft, d),
  };
}
