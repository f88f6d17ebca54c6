"""MIG: names of profiles, geometry of boards, planning and control of layouts."""
