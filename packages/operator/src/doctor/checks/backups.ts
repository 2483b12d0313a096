/** Checks the age of the last backup, which the control plane reports. */
import { type Check, logOf } from '../check.ts';
import { finding, notChecked, ok, type Result } from '../result.ts';

export const BACKUPS: Check = {
  name: 'backups',
  roles: ['control-plane'],
  async run({ instances, facts }) {
    return Promise.all(
      instances.map(async (instance): Promise<Result> => {
        const reached = await facts.readiness(instance);
        if ('problem' in reached)
          return notChecked('the age of the last backup: the control plane does not answer');
        const part = reached.value.parts.find(({ name }) => name === 'backups');
        const consequence =
          'if the disk of the control plane is lost, all changes since the last backup are ' +
          'lost with it';
        const target = instance.settings.get('BACKUP_TO');
        const remedy =
          `set BACKUP_TO in ${instance.file ?? 'the environment of the control plane'} ` +
          '(docs/backup.md); now: berth backup --to FOLDER';
        if (part === undefined)
          return finding(
            'there is no backup, and no schedule for backups',
            'if the disk of the control plane is lost, projects, users and settings are lost ' +
              'with it',
            remedy,
          );
        // Without a schedule, the control plane accepts a backup of any age.
        if (part.ok && (target ?? '') === '')
          return finding(`there is no schedule for backups (${part.detail})`, consequence, remedy);
        if (part.ok) return ok(`backups: ${part.detail}`);
        return finding(
          `backups: ${part.detail}` +
            (target === undefined
              ? ''
              : ` (BACKUP_TO=${target}, every ` +
                `${instance.settings.get('BACKUP_INTERVAL') ?? '1h'})`),
          consequence,
          `read why: ${logOf(instance)} | grep backup; then: berth backup`,
        );
      }),
    );
  },
};
